# For scripts that build the core for themselves, which source this in the repository's root. $python is
# the interpreter, which $PYTHON names, and $build the folder of the build, which goes at the end.
set -euo pipefail

python=${PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=$(command -v python3)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

# Builds the core, and what drives it for tests unless $FILTERJIT_TESTING is 0.
build_core() { # CFLAGS
    local -x FILTERJIT_TESTING=${FILTERJIT_TESTING:-1} FILTERJIT_CFLAGS=$1
    "${python[@]}" setup.py -q build_ext --force --build-lib "$build" \
        --build-temp "$build/temp$FILTERJIT_TESTING"
}
