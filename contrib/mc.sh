#!/bin/sh
# Runs MinIO's client `mc` against an S3 endpoint and says what passed. It makes two buckets and leaves the locked one.
#
#   contrib/mc.sh URL ACCESS_KEY SECRET_KEY OFFICERS_ACCESS_KEY OFFICERS_SECRET_KEY
#
# The keys: stele key create --role storage-administrator --access read,write,delete,list,retain --bypass-governance
#           stele key create --role retention-officer
#
# Needs `mc` in PATH: go install github.com/minio/mc@latest
set -u
[ $# -eq 5 ] || { sed -n 2,9p "$0" >&2; exit 2; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
run=$(date +%s) passed=0 failed=0
plain=mc-plain-$run locked=mc-locked-$run
mc() { command mc --config-dir "$work/config" --no-color "$@"; }
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
pipe() { mc pipe "s/$plain/pipe" <"$work/small"; }
# Whether an object has the content of the small file.
is_small() { mc cat "$1" | cmp - "$work/small"; }

head -c 100000 /dev/urandom >"$work/small"
head -c 70000000 /dev/urandom >"$work/large"
mkdir "$work/tree" && for name in a b c; do echo "$name" >"$work/tree/$name.txt"; done

mc alias set s "$1" "$2" "$3" --api S3v4 --path on >/dev/null || exit 1
mc alias set officer "$1" "$4" "$5" --api S3v4 --path on >/dev/null || exit 1
ok mb "$plain" mc mb "s/$plain"
ok mb-with-lock "$locked" mc mb --with-lock "s/$locked"
ok ls "$plain" mc ls s
ok cp "" mc cp "$work/small" "s/$plain/dir/small"
ok cp-large "" mc cp "$work/large" "s/$plain/large"
ok cp-checksum "" mc cp --checksum CRC32C "$work/large" "s/$plain/large-crc"
ok cp-attributes "" mc cp --attr "Cache-Control=no-cache;a=b" "$work/small" "s/$plain/attributes"
ok stat "no-cache" mc stat "s/$plain/attributes"
ok cp-tags "" mc cp --tags "k1=v1&k2=v2" "$work/small" "s/$plain/tagged"
ok tag-list "v1" mc tag list "s/$plain/tagged"
ok tag-set "" mc tag set "s/$plain/tagged" "k3=v3"
ok tag-remove "" mc tag remove "s/$plain/tagged"
ok tag-bucket "" mc tag set "s/$plain" "owner=records"
ok get "" mc get "s/$plain/large" "$work/large.back"
ok get-same "" cmp "$work/large" "$work/large.back"
ok put "" mc put "$work/small" "s/$plain/put"
ok pipe "" pipe
ok cat-same "" is_small "s/$plain/pipe"
ok head-of-object "" mc head -n 1 "s/$plain/pipe"
ok mirror "" mc mirror "$work/tree" "s/$plain/tree"
ok diff "" mc diff "$work/tree" "s/$plain/tree"
ok find "tree/b.txt" mc find "s/$plain" --name "b*"
ok du "" mc du "s/$plain"
ok tree "tree" mc tree "s/$plain"
ok mv "" mc mv "s/$plain/tree/a.txt" "s/$plain/tree/z.txt"
ok copy-on-server "" mc cp "s/$plain/large" "s/$plain/copy"
ok share-download "X-Amz-Signature" mc share download "s/$plain/pipe"
ok share-upload "curl" mc share upload "s/$plain/uploaded"
ok version-enable "" mc version enable "s/$plain"
ok version-info "enabled" mc version info "s/$plain"
ok cp-again "" mc cp "$work/large" "s/$plain/dir/small"
ok ls-versions "v2" mc ls --versions "s/$plain/dir/small"
ok undo "" mc undo "s/$plain/dir/small" --force
ok rm "" mc rm "s/$plain/dir/small"
ok rm-versions "" mc rm --versions --force "s/$plain/dir/small"
ok ilm-add "" mc ilm rule add --expire-days 30 --prefix "old/" "s/$plain"
ok ilm-list "old/" mc ilm rule list "s/$plain"
ok ilm-remove "" mc ilm rule remove --all --force "s/$plain"
ok anonymous-set "" mc anonymous set download "s/$plain/tree"
ok anonymous-get "download" mc anonymous get "s/$plain/tree"
ok anonymous-none "" mc anonymous set private "s/$plain/tree"
ok encrypt "" mc encrypt set sse-s3 "s/$plain"
ok encrypt-info "" mc encrypt info "s/$plain"
ok encrypt-clear "" mc encrypt clear "s/$plain"
printf '<CORSConfiguration><CORSRule><AllowedOrigin>https://a.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>' >"$work/cors.xml"
ok cors-set "" mc cors set "s/$plain" "$work/cors.xml"
ok cors-get "a.example" mc cors get "s/$plain"
ok cors-remove "" mc cors remove "s/$plain"

ok lock-default "" mc retention set --default GOVERNANCE 1d "officer/$locked"
ok lock-default-info "GOVERNANCE" mc retention info --default "s/$locked"
ok locked-cp "" mc cp "$work/small" "s/$locked/record"
ok locked-info "GOVERNANCE" mc retention info "s/$locked/record"
version=$(mc ls --versions --json "s/$locked/record" | sed -n 's/.*"versionId":"\([^"]*\)".*/\1/p' | head -1)
refused rm-of-a-locked-version "retained in GOVERNANCE" mc rm --version-id "$version" "s/$locked/record"
ok compliance "" mc retention set --bypass COMPLIANCE 2d "s/$locked/record"
ok compliance-info "COMPLIANCE" mc retention info "s/$locked/record"
refused shorten "retained in COMPLIANCE" mc retention set --bypass COMPLIANCE 1d "s/$locked/record"
refused clear "retained in COMPLIANCE" mc retention clear "s/$locked/record"
refused bypass "retained in COMPLIANCE" mc rm --bypass --version-id "$version" "s/$locked/record"
ok hold-set "" mc legalhold set "s/$locked/record"
ok hold-info "ON" mc legalhold info "s/$locked/record"
ok hold-clear "" mc legalhold clear "s/$locked/record"
ok marker "" mc rm "s/$locked/record"
ok undo-marker "" mc undo "s/$locked/record" --force
ok record-is-back "" is_small "s/$locked/record"
refused rb-of-a-locked-bucket "retained in COMPLIANCE" mc rb --force "s/$locked"
ok rb "" mc rb --force "s/$plain"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
