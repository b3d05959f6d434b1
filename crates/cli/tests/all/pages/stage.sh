# What every stage begins with. Commands of the pages run as alice runs them, one after the other in this shell.
set -u

fail() {
    printf 'line %s: `%s` %s\n' "$line" "$command" "$1"
    cat /tmp/said
    exit 1
}

# What stands for a value in the pages, and the value.
declare -A values=()

# Takes a command of the pages from standard input, with values for what stands for them.
take() {
    line=$1
    command=$(cat)
    local name
    for name in "${!values[@]}"; do command=${command//"$name"/"${values[$name]}"}; done
    printf 'line %s: %s\n' "$line" "$command" >&2
}

# Runs a command, and sees that it ends with the code `$2`. `$1` is its line.
run() {
    take "$1"
    eval "$command" > /tmp/said 2>&1 < /dev/null
    local code=$?
    [ "$code" = "$2" ] || fail "ends with $code instead of $2:"
}

# Runs a command that stays, which is `started` then, and waits until it has said a line.
start() {
    take "$1"
    : > "/tmp/said.$1"
    eval "${command% &} &" > "/tmp/said.$1" 2>&1 < /dev/null
    started=$!
    until grep -q . "/tmp/said.$1"; do
        kill -0 "$started" 2> /dev/null || { cat "/tmp/said.$1" > /tmp/said; fail 'has ended:'; }
        sleep 0.1
    done
    cat "/tmp/said.$1" > /tmp/said
    ! grep -q "^posthaste: can't" /tmp/said || fail 'does not start:'
}

# Sees that the last command said a line like the pattern on standard input.
see() {
    line=$1
    local pattern said
    pattern=$(cat)
    while IFS= read -r said || [ -n "$said" ]; do
        # A pattern, on purpose.
        # shellcheck disable=SC2053
        [[ $said == $pattern ]] && return 0
    done < /tmp/said
    fail "says nothing like: $pattern"
}

# Waits until a command succeeds.
until_so() {
    until "$@" > /tmp/waited 2>&1; do sleep 0.2; done
}

# Ends what was started, and waits until nothing of it runs.
end() {
    local process processes
    processes="$(cat "/proc/$1/task/$1/children") $1"
    # Some may have ended by themselves.
    kill $processes 2> /dev/null || true
    wait "$1" || true
    for process in $processes; do
        while kill -0 "$process" 2> /dev/null; do sleep 0.1; done
    done
}

# Has the service know a depot by the line that its relay just said.
paste() {
    grep -o 'posthaste depot add.*' /tmp/said > /tmp/line
    . /tmp/line > /tmp/waited 2>&1 || fail "says a line that does not work: $(cat /tmp/waited)"
}

# Runs a relay of this name at this port, and has the service know it.
lend() {
    start 0 <<< "posthaste relay --name $1 --dir /srv/relays/$1 --listen 127.0.0.1:$2 --capacity 2G"
    paste
}

# Makes a tree with something in it.
tree() {
    mkdir -p "$1/deep"
    seq 20000 > "$1/numbers.txt"
    seq 500 > "$1/deep/few.h5"
}

# Starts an S3 server with these buckets, for whoever has its keys in the environment.
buckets() {
    for bucket in "$@"; do mkdir -p "/srv/s3/$bucket"; done
    export AWS_ACCESS_KEY_ID=stage-access AWS_SECRET_ACCESS_KEY=stage-secret AWS_ENDPOINT_URL=http://127.0.0.1:9000 AWS_REGION=us-east-1
    ROOT_ACCESS_KEY=stage-access ROOT_SECRET_KEY=stage-secret "$S3_SERVER" \
        --port 127.0.0.1:9000 --quiet posix /srv/s3 > /tmp/versitygw.log 2>&1 &
    listening 9000
}

# Has these hosts answer over SSH, to whoever has the key in HOME.
hosts() {
    local at=$1
    shift
    echo "$at $*" >> /etc/hosts
    mkdir -p -m 700 /root/.ssh /run/sshd
    [ -e /root/.ssh/id_ed25519 ] || {
        ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
        ssh-keygen -q -t ed25519 -N '' -f /srv/host_key
        printf '%s\n' "Host *" "StrictHostKeyChecking no" > /root/.ssh/config
        for user in alice me; do
            useradd --create-home --password "*" --shell /bin/bash "$user"
            install -d -m 700 -o "$user" "/home/$user/.ssh"
            install -m 600 -o "$user" /root/.ssh/id_ed25519.pub "/home/$user/.ssh/authorized_keys"
        done
        install -m 600 /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
    }
    /usr/sbin/sshd -o "ListenAddress=$at:22" -o HostKey=/srv/host_key -o PidFile=none -o UsePAM=no -o 'Subsystem=sftp internal-sftp' \
        -o "SetEnv=PATH=$PATH" -f /dev/null
    listening 22 "$at"
}

listening() {
    until (: < "/dev/tcp/${2:-127.0.0.1}/$1") 2> /dev/null; do sleep 0.1; done
}

trap 'echo "a line of the stage fails: $BASH_COMMAND"; exit 1' ERR
mkdir -p /srv
: > /tmp/said
