# What the scripts beside this one share: steps that say what they run, how long
# it took, and which of them failed. To be sourced.

current="start"
trap 'code=$?; if [ "$code" -ne 0 ]; then echo; echo "FAILED: $current (exit $code)"; fi' EXIT

# A step that hangs is named too, long before whoever runs the script gives up.
step_minutes_max="${STEP_MINUTES_MAX:-40}"

step() {
    current="$1"
    shift
    echo
    echo "=== $current"
    echo "    $*"
    local started=$SECONDS
    timeout --kill-after=10 "${step_minutes_max}m" "$@"
    echo "    ok: $current, $((SECONDS - started)) s"
}

skip() {
    echo
    echo "=== $1: skipped, $2"
}
