#!/bin/sh
#SBATCH --job-name=campaign
#SBATCH --array=1-20
#SBATCH --cpus-per-task=2
#SBATCH --time=01:00:00
# When to use it: a cluster with Slurm. Each task of the array finds its number in
# SLURM_ARRAY_TASK_ID, and that of all tasks in SLURM_ARRAY_TASK_COUNT:
#
#   JOB=$(sbatch --parsable slurm.sh)
#   sbatch --dependency="afterany:$JOB" --wrap 'softring explore merge campaign-*.json'
set -eu
softring explore --seeds 0..20000 --shard auto --jobs "${SLURM_CPUS_PER_TASK:-1}" --with fixtures \
    --json "campaign-$SLURM_ARRAY_TASK_ID.json" -- ./program || [ $? -eq 1 ]
