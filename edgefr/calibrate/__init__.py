"""What bundles cost on this machine, measured in processes of their own, and what that says of the device classes.

    bundles ─► one fresh process per activity (`probe`), under limits (`trial`) ─► calibration.json ─► the fleet, tables

Owns: measuring. Does not own: the file's schema (`edgefr.fleet.calibration`), scaling to devices
(`edgefr.fleet.ratio`).
"""
