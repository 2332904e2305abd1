# For scripts that run sessions of noxfile.py, which source this: `[VERSION...] [-- PYTEST_ARGS]` of the
# command line are $versions and $@. nox and uv are in an environment of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
versions=()
while [[ $# -gt 0 && $1 != -- ]]; do
    versions+=("$1")
    shift
done
tools=build/nox
[[ -x $tools/bin/nox ]] || { python3 -m venv "$tools" && "$tools/bin/python" -m pip install --quiet nox uv; }
export PATH=$PWD/$tools/bin:$PATH
