"""Calibration measures what bundles cost on this machine, and derives what that says of the device classes.

Bundles run in processes of their own.

    bundles ─► one fresh process per activity (`probe`), under limits (`trial`) ─► calibration.json ─► the fleet, tables

Owns: measuring. Does not own: the file's schema (`edgefr.fleet.calibration`), scaling to devices
(`edgefr.fleet.ratio`).
"""
