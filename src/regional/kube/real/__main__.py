"""`make kube`: build, or with --built say where it is and fail if it is not."""

from __future__ import annotations

import sys

from regional.core.problems import UserError
from regional.kube.real.build import build, control_plane, gardener


def main() -> int:
    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    programs = (control_plane(), gardener())
    if sys.argv[1:] == ["--built"]:
        missing = [program.name for program in programs if not program.built().exists()]
        print(*(program.built() for program in programs), sep="\n")
        return 1 if missing else 0
    try:
        for program in programs:
            print(build(program, tell))
    except UserError as error:
        tell(f"error: {error.message}")
        tell(f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        tell("stopped; what is compiled so far is kept, and the next `make kube` goes on from there")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
