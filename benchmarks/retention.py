"""What is left of planted facts after each of many compactions (SPEC A2, K13, T5).

`python -m benchmarks.retention [STEPS]`. Facts stand in the Run's own inputs, in earlier questions and answers, beside
calls, in results, and in a part of a long result that was not shown. Counted is what stands word for word in the next
request, of what had stood in one by then, and what the model can have back with the tools it has. Once with a
summariser that keeps nothing, once with the demo model's, which extracts sentences; neither says how well a language
model summarises. Protected inputs must be there, all of them, whatever the summariser does.
"""

import sys

import uvloop

from benchmarks.ground import Servers, real_servers
from tests.support import run_world
from tests.support.retention import PROTECTED, Retention, Summarise, extracts, keeps_nothing, retained
from tests.support.run_world import working_world

STEPS = 60
SHOWN = (1, 2, 5, 10)
SUMMARISERS: dict[str, Summarise] = {"keeps nothing": keeps_nothing, "extracts": extracts}


async def measured(at: Servers, name: str, steps: int) -> Retention:
    queue = name.replace(" ", "-")
    servers = run_world.Servers(at.database_url, at.temporal_address, queue, at.folder)
    async with working_world(servers) as world:
        return await retained(world, steps, SUMMARISERS[name])


def shown(name: str, found: Retention) -> bool:
    """Print the table; whether every protected input was there after the last compactions."""
    counts = sorted({*(one for one in SHOWN if one <= len(found.kept)), len(found.kept)})
    print(f"summariser that {name}: {len(found.kept)} compactions")
    print(f"{'':20}{'planted':>8}" + "".join(f"{'after ' + str(one):>10}" for one in counts) + f"{'by tools':>10}")
    for kind, facts in found.planted.items():
        cells = "".join(f"{found.kept[one - 1][kind]:>5} of {found.shown[one - 1][kind]}" for one in counts)
        print(f"{kind:20}{len(facts):8}{cells}{found.reachable[kind]:10}")
    sights = "".join(f"{found.in_sight[one - 1]:>5}     " for one in counts)
    print(f"{'its reference':28}{sights}")
    return all(one[kind] == two[kind] for one, two in zip(found.kept, found.shown, strict=True) for kind in PROTECTED)


async def main(at: Servers, steps: int) -> int:
    held = [shown(name, await measured(at, name, steps)) for name in SUMMARISERS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    with real_servers() as at:
        sys.exit(uvloop.run(main(at, int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)))
