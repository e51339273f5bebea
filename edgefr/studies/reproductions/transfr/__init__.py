"""TransFR's tables of its data sets are counted anew."""
