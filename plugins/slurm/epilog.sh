#!/bin/sh
# posthaste's EpilogSlurmctld for a Slurm without burst_buffer/lua. Tells the service that a job of `posthaste submit` ends, so that
# what it leaves leaves at once. USER.toml in the folder says which service a user has (`server`, `token_file`).
PROGRAM=/usr/bin/posthaste
SERVICES=/etc/posthaste/slurm.d

# Slurm gives none.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

service="$SERVICES/$SLURM_JOB_USER.toml"
[ -e "$service" ] || exit 0
said=$("$PROGRAM" slurm hook --config "$service" epilog -- "$SLURM_JOB_ID" 2>&1) && exit 0
logger -t posthaste -- "the service was not told that job $SLURM_JOB_ID ends: $said"
exit 1
