"""Tests compare results by the bounds that the product's own checks of methods have."""

from edgefr.methods.testing.closeness import after_training as after_training
from edgefr.methods.testing.closeness import assert_all_same as assert_all_same
from edgefr.methods.testing.closeness import assert_same as assert_same
