#!/bin/sh
# When to use it: some machines with ssh, and no cluster. GNU parallel tells each job its number in
# PARALLEL_SEQ. With `--sshloginfile FILE --workdir . --return '{}.json'` the jobs run elsewhere.
set -eu
seq -f campaign-%g 20 | parallel --halt never "softring explore --seeds 0..20000 --shard auto/20 \
    --with fixtures --json {}.json -- ./program || [ \$? -eq 1 ]"
softring explore merge --junit campaign.xml campaign-*.json
