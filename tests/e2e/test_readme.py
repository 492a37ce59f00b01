"""The README's first agent, typed as it stands there."""

import os
import re
import subprocess
from pathlib import Path

from tests.support.dev_stack import AGENTLOOM, running_dev

README = Path(__file__).parents[2] / "README.md"


def first_agent() -> str:
    """The block of commands that makes, publishes and asks the first agent."""
    blocks: list[str] = re.findall(r"^```\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if "agentloom publish city/city.yaml" in block)


def test_the_first_agent_of_the_readme_answers_with_its_tool(tmp_path: Path) -> None:
    """SPEC 17: with the stack running in the folder, nothing else has to be said."""
    (tmp_path / "city").mkdir()
    environment = os.environ | {"PATH": f"{Path(AGENTLOOM).parent}:{os.environ['PATH']}"}
    with running_dev(tmp_path / ".agentloom", "--app-dir", str(tmp_path / "city")):
        answer = subprocess.run(
            ["bash", "-euc", first_agent()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=40,
        )
    assert answer.returncode == 0, answer.stderr
    assert "Lisbon has 545000 inhabitants. (population)" in answer.stdout
    assert "loop 1: tools population" in answer.stderr
