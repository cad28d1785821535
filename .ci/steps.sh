# What the scripts beside this one share: steps that say what they run, how long
# it took, and which of them failed. To be sourced.

current="start"
trap 'code=$?; if [ "$code" -ne 0 ]; then echo; echo "FAILED: $current (exit $code)"; fi' EXIT

step() {
    current="$1"
    shift
    echo
    echo "=== $current"
    echo "    $*"
    local started=$SECONDS
    "$@"
    echo "    ok: $current, $((SECONDS - started)) s"
}

skip() {
    echo
    echo "=== $1: skipped, $2"
}
