"""Records as tables."""

from statistics import median
from typing import Any

from dsa_cp.cli.output import print_line, print_table
from dsa_cp.tools.bench.words import ORDER_NAMES

Records = list[dict[str, Any]]


def print_report(records: Records) -> None:
    """Print what the records hold, part by part."""
    for record in _of(records, "run"):
        gpus = record["gpus"]
        machine = f"{len(gpus)} x {gpus[0]}" if gpus else record["machine"]
        print_line(f"{record['date']}  {machine}  torch {record['versions']['torch']}  commit {record['commit']}")
    for part, show in (("check", _checks), ("host", _host), ("modes", _modes), ("stage", _stages), ("k_tail", _tail)):
        if found := _of(records, part):
            show(found, records)


def _of(records: Records, part: str) -> Records:
    return [record for record in records if record["part"] == part]


def _us(record: dict[str, Any]) -> str:
    if "median_us" not in record:
        return "-"
    return f"{record['median_us']:.3g} ({record['p10_us']:.3g}-{record['p90_us']:.3g})"


def _median(record: dict[str, Any]) -> str:
    return f"{record['median_us']:.3g}" if "median_us" in record else "-"


def _checks(found: Records, records: Records) -> None:
    ways = list(dict.fromkeys(record["way"] for record in found))
    cells = {(record["stage"], record["way"]): record for record in found}
    names = list(dict.fromkeys(record["stage"] for record in found))
    rows = [[name, *(_median(cells[name, way]) for way in ways)] for name in names]
    medians = []
    for way in ways:
        times = [record["median_us"] for record in found if record["way"] == way and "median_us" in record]
        medians.append(f"{median(times):.3g}" if times else "-")
    title = "contract check of one call, us, median, without the call itself"
    print_table(title, ["stage", *ways], [*rows, ["median", *medians]], numeric=frozenset(ways))


def _host(found: Records, records: Records) -> None:
    headers = ["way", "requests", "us a layer"]
    rows = [[record["way"], str(record["requests"]), _us(record)] for record in found]
    print_table(f"positions and lengths, host time a layer, {found[0]['device']}", headers, rows)


def _modes(found: Records, records: Records) -> None:
    for size in dict.fromkeys(record["rows"] for record in found):
        chosen = [record for record in found if record["rows"] == size]
        first, base = chosen[0], chosen[0]["median_us"]
        rows = [[r["mode"], _us(r), f"{r['median_us'] - base:+.1f}", f"{r['median_us'] / base - 1:+.2%}"] for r in chosen]
        title = f"{first['layers']} layers, {size} tokens a rank, attend by {first['attend']}, {first['gather']}"
        print_table(title, ["mode", "us a layer", "more than production, us", "in %"], rows)


def _stages(found: Records, records: Records) -> None:
    headers = ["stage", "case", "by", "us", "floor us", "ratio", "TFLOP/s"]
    rows = []
    for record in found:
        rate = f"{record['operations'] / record['median_us'] * 1e-6:.0f}" if record["operations"] else ""
        case = [record["stage"], record["case"], record["implementation"], _us(record)]
        rows.append([*case, f"{record['floor_us']:.4g}", f"{record['ratio']:.2f}", rate])
    copy = next(record["local_gb_s"] for record in _of(records, "copy"))
    title = f"stages against their floor (bytes over {copy:.0f} GB/s, the copy bandwidth of this run), graph replay"
    print_table(title, headers, rows, numeric=frozenset(headers[4:]))


def _tail(found: Records, records: Records) -> None:
    for record in _of(records, "bandwidth"):
        print_line(
            f"copies, GB/s: {record['local_gb_s']} on one GPU (read + written), {record['peer_gb_s']} from a peer, "
            f"{record['peer_both_ways_gb_s']} with all ranks at it (the wire floor)"
        )
    orders = list(dict.fromkeys(record["order"] for record in found))
    for with_index in (False, True):
        for mode in ("graph", "eager"):
            chosen = [r for r in found if r["with_index"] is with_index and r["mode"] == mode]
            cells = {(record["rows"], record["order"]): record for record in chosen}
            rows = []
            for count in dict.fromkeys(record["rows"] for record in chosen):
                best = cells[count, orders[-1]]
                ratios = [f"{cells[count, order]['median_us'] / best['median_us']:.2f}" for order in orders[:2]]
                times = [f"{cells[count, order]['median_us']:.1f}" for order in orders]
                over = best["median_us"] / best["floor_us"]
                rows.append([str(count), f"{best['floor_us']:.1f}", *times, f"{over:.2f}", *ratios])
            names = [ORDER_NAMES[order] for order in orders]
            last = names[-1].rpartition(" ")[2]
            headers = ["rows a rank", "floor", *names, f"{last} / floor", f"sglang / {last}", f"vLLM / {last}"]
            index = " with the indexer's key" if with_index else ""
            title = f"K tail{index}, {mode}, us a layer, median"
            print_table(title, headers, rows, numeric=frozenset(headers))
