#!/usr/bin/env bash
# One node of a torchrun job: restore once, then start the ranks. Run it once on every node:
#
#   export CACHEKEEPER_STORE=s3://bucket/caches CACHEKEEPER_NAME=drafter
#   NNODES=2 NODE_RANK=0 MASTER_ADDR=node-a bash torchrun.sh train.py --steps 3
#
# NPROC_PER_NODE is the number of ranks, by default one for each GPU; WARM_START_SAVE is the name that a cold start is
# saved under. CACHEKEEPER_NAME may be a name; an id (`cachekeeper show drafter --quiet`) cannot move while the
# nodes start.
set -euo pipefail

: "${NNODES:?}" "${NODE_RANK:?}" "${MASTER_ADDR:?}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# torchrun sets this to 1 where it is not set, for the ranks only: the restore must see what they see.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# On the node's own disk, and new at every start, so that nothing is in it but what is restored now.
made=""
if [ -z "${WARM_START_DIR:-}" ]; then
    made="$(mktemp -d "${TMPDIR:-/tmp}/warm-start.XXXXXX")"
    export WARM_START_DIR="$made"
fi

python "$here/warm_start.py"

status=0
python -m torch.distributed.run \
    --nnodes="$NNODES" --node-rank="$NODE_RANK" --nproc-per-node="${NPROC_PER_NODE:-gpu}" \
    --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" \
    "$@" || status=$?

if [ -n "$made" ]; then
    rm -rf "$made"
fi
exit "$status"
