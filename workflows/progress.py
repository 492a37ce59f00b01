"""What a Run shows of itself in the Temporal UI: numbers and names, never content (SPEC W3)."""

from workflows.run_types import RunState


def current_details(state: RunState) -> str:
    """Phase, loop, cutoff, size, waiting supplements and the last error, as the UI's current details (Markdown)."""
    share = 100 * state.estimated // state.input_limit if state.input_limit else 0
    lines = [
        f"**{state.phase.replace('_', ' ')}** · agent {state.agent}",
        f"loop {state.loop} of {state.max_loops}",
        f"context {state.estimated} / {state.input_limit} tokens ({share} %)",
        f"input cutoff {state.cutoff}",
        f"supplements waiting: {len(state.pending)}",
        *([f"last error: {state.last_error}"] if state.last_error else []),
    ]
    return "  \n".join(lines)
