#!/bin/sh
# posthaste's PrologSlurmctld for a Slurm without burst_buffer/lua. Of jobs of `posthaste submit` it has the service look once
# more whether their data is here; where it is not, Slurm puts the job back into its queue, and the service brings what is missing.
# USER.toml in the folder says which service a user has (`server`, `token_file`). Jobs of users without one are let alone.
PROGRAM=/usr/bin/posthaste
SERVICES=/etc/posthaste/slurm.d

# Slurm gives none.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

service="$SERVICES/$SLURM_JOB_USER.toml"
[ -e "$service" ] || exit 0
said=$("$PROGRAM" slurm hook --config "$service" prolog -- "$SLURM_JOB_ID" 2>&1) && exit 0
logger -t posthaste -- "job $SLURM_JOB_ID goes back to the queue: $said"
exit 1
