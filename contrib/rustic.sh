#!/bin/sh
# Runs rustic against restic's REST protocol of a server and says what passed. restic works in the
# same repositories. It makes one bucket with two repositories, and leaves it.
#
#   contrib/rustic.sh URL ACCESS_KEY SECRET_KEY APPENDERS_ACCESS_KEY APPENDERS_SECRET_KEY
#
# URL as http://127.0.0.1:8000, that of `[rest] listen`. The keys:
#           stele key create --role storage-administrator --access read,write,delete,list
#           stele key create --access read,write,list
#
# Needs `rustic`, `restic` and `rsync` in PATH: cargo install rustic-rs --locked
set -u
[ $# -eq 5 ] || { sed -n 2,12p "$0" >&2; exit 2; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 bucket=rustic-$(date +%s)
owner=rest:${1%%://*}://$2:$3@${1#*://}/$bucket
appender=rest:${1%%://*}://$4:$5@${1#*://}/$bucket
stranger=rest:${1%%://*}://$2:wrong@${1#*://}/$bucket
# Neither caches nor settings of this user.
export HOME="$work" XDG_CONFIG_HOME="$work" RUSTIC_PASSWORD=horse RESTIC_PASSWORD=horse
rustic() { command rustic --no-cache --no-progress "$@"; }
restic() { command restic --no-cache "$@"; }
# Expects success, and that the output contains the second word.
ok() {
    what=$1 expected=$2
    shift 2
    if said=$("$@" 2>&1) && case $said in *"$expected"*) true ;; *) false ;; esac; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s: %s\n' "$what" "$said"
    fi
}
# Expects a refusal that contains the second word: any other failure proves nothing.
refused() {
    what=$1 expected=$2
    shift 2
    if said=$("$@" 2>&1); then
        failed=$((failed + 1))
        printf 'ALLOWED %s: %s\n' "$what" "$said"
    else case $said in
        *"$expected"*) passed=$((passed + 1)) ;;
        *) failed=$((failed + 1)) && printf 'FAILED %s: %s\n' "$what" "$said" ;;
        esac
    fi
}
# Whether nothing differs that rsync compares.
same() {
    different=$(rsync -aHAXni --checksum --delete "$1/" "$2/" | grep -v '^\.d\.\.t\.\.\.\.\.\. \./$')
    [ -z "$different" ] || { printf '%s\n' "$different"; return 1; }
}
# Two backups at once.
both() {
    rustic -r "$owner/one" backup "$work/first" >"$work/first.log" 2>&1 &
    rustic -r "$owner/one" backup "$work/second" || { wait; return 1; }
    wait $! || { cat "$work/first.log"; return 1; }
}

mkdir -p "$work/first/empty" "$work/second" "$work/kinds"
for number in 1 2 3 4 5 6 7 8 9; do head -c "${number}00000" /dev/urandom >"$work/first/$number"; done
head -c 9000000 /dev/urandom >"$work/second/large"
head -c 3000000 /dev/urandom >"$work/kinds/file"
: >"$work/kinds/no content"
ln "$work/kinds/file" "$work/kinds/again"
ln -s nowhere "$work/kinds/link"
mkfifo "$work/kinds/pipe"
truncate -s 50M "$work/kinds/sparse"
chmod 4750 "$work/kinds/no content"
touch -d 1999-12-31T23:59:59.123456789Z "$work/kinds/file"
setfattr -n user.note -v text "$work/kinds/file" 2>/dev/null

ok init "successfully created" rustic -r "$owner/one" init
refused init-again "exists" rustic -r "$owner/one" init
ok backup "successfully saved" rustic -r "$owner/one" backup "$work/kinds" "$work/first"
ok snapshots "1 snapshot(s)" rustic -r "$owner/one" snapshots
ok ls "kinds/again" rustic -r "$owner/one" ls latest
ok repoinfo "Pack" rustic -r "$owner/one" repoinfo
ok check "" rustic -r "$owner/one" check
ok check-read-data "" rustic -r "$owner/one" check --read-data
ok restore "restore done" rustic -r "$owner/one" restore "latest:$work/kinds" "$work/back"
ok restore-same "" same "$work/kinds" "$work/back"
refused wrong-password "password" env RUSTIC_PASSWORD=cow rustic --no-cache -r "$owner/one" snapshots
# rustic tells a refusal of the config as its absence.
refused wrong-secret "No repository config file found" rustic -r "$stranger/one" backup "$work/kinds"
refused no-repository "config" rustic -r "$owner/none" snapshots
ok two-at-once "successfully saved" both
ok two-at-once-check "" rustic -r "$owner/one" check --read-data
ok two-at-once-snapshots "total: 3 snapshot(s)" rustic -r "$owner/one" snapshots
ok key-add "successfully added" rustic -r "$owner/one" key add --new-password cow
ok key-opens "total: 3" env RUSTIC_PASSWORD=cow rustic --no-cache -r "$owner/one" snapshots
# Files of a repository are never replaced.
refused config "403" rustic -r "$owner/one" config --set-compression 5

echo more >"$work/kinds/more"
ok append-backup "successfully saved" rustic -r "$appender/one" backup "$work/kinds"
refused append-forget "403" rustic -r "$appender/one" forget --keep-last 1 --group-by host
refused append-prune "403" rustic -r "$appender/one" prune --max-unused 0
refused append-forget-prune "403" rustic -r "$appender/one" forget --keep-last 1 --group-by host --prune
ok append-all-there "total: 4 snapshot(s)" rustic -r "$appender/one" snapshots
ok append-check "" rustic -r "$appender/one" check --read-data
ok tag "1 snapshots have been rewritten" rustic -r "$owner/one" tag --set nightly latest
ok forget-prune "remove" rustic -r "$owner/one" forget --keep-last 1 --group-by host --prune
ok prune "" rustic -r "$owner/one" prune --instant-delete --keep-delete 0s
ok prune-check "" rustic -r "$owner/one" check --read-data
ok prune-snapshots "total: 1 snapshot(s)" rustic -r "$owner/one" snapshots

ok restic-check "no errors were found" restic -r "$owner/one" check --read-data
ok restic-backup "saved" restic -r "$owner/one" backup "$work/kinds"
ok restic-restore "" restic -r "$owner/one" restore latest --target "$work/restic"
ok restic-restore-same "" same "$work/kinds" "$work/restic$work/kinds"
ok restic-prune "" restic -r "$owner/one" forget --keep-last 1 --group-by host --prune
ok restic-pruned-check "" rustic -r "$owner/one" check --read-data

ok restic-init "created restic repository" restic -r "$owner/two" init
ok restic-init-backup "saved" restic -r "$owner/two" backup "$work/kinds"
ok of-restic-check "" rustic -r "$owner/two" check --read-data
ok of-restic-backup "successfully saved" rustic -r "$owner/two" backup "$work/first"
ok of-restic-restore "restore done" rustic -r "$owner/two" restore "latest:$work/first" "$work/back-first"
ok of-restic-restore-same "" same "$work/first" "$work/back-first"
ok of-restic-prune "" rustic -r "$owner/two" forget --keep-last 1 --group-by host --prune
ok of-restic-last-check "no errors were found" restic -r "$owner/two" check --read-data
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
