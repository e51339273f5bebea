"""This module turns the device classes of a file into rows for a table."""

from edgefr.fleet.spec import Figure, FleetFile


def table(spec: FleetFile) -> list[dict[str, str]]:
    """Return one row of text per device class, in the order of the file; the keys are the column titles."""
    rows = []
    for name, device in spec.devices.items():
        memory, compute, power = device.memory, device.compute, device.power
        graded = {
            "app": memory.app_mb,
            "fp32": compute.fp32_gflops,
            "int8": compute.int8_gops,
            "copy": memory.copy_gbs,
            "W": power.active_w,
        }
        rows.append(
            {
                "class": name,
                "label": device.label,
                "share": f"{spec.fleet.share.get(name, 0.0):.3g}",
                "cores": device.soc.cores,
                "RAM / app MB": f"{memory.total_mb:g} / {memory.app_mb.v:g}",
                "fp32 GFLOP/s": _spread(compute.fp32_gflops),
                "int8 GOP/s": f"{compute.int8_gops.v:g}",
                "copy GB/s": f"{memory.copy_gbs.v:g}",
                "idle / active W": f"{power.idle_w.v:g} / {power.active_w.v:g}",
                "battery Wh": f"{power.battery_wh.v:g}" if power.battery_wh else "-",
                "networks": ", ".join(f"{n} {share:.0%}" for n, share in device.networks.items()),
                "evidence": " ".join(f"{key}:{figure.kind}" for key, figure in graded.items()),
            }
        )
    return rows


def _spread(figure: Figure) -> str:
    ends = f" ({figure.lo:g}-{figure.hi:g})" if figure.lo and figure.hi else ""
    return f"{figure.v:g}{ends}"
