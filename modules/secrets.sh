# shellcheck shell=bash
# Makes what is missing of the secrets, joins their hashes into the ACL file, and writes the
# operator's environment. With RESTART set it writes nothing, and restarts that unit when a secret
# is missing or the ACL file is no longer that of the secrets. No secret is ever an argument of a
# program.
#
# SECRETS: one "credential file made|given" a line; what is made is in SECRETS_DIRECTORY.
# ACL: the file with @credential@ where a hash belongs.
set -euo pipefail
umask 0377

declare -A hash_of

# 244 random bits of the kernel's generator.
make_secret() {
  local first second
  read -r first </proc/sys/kernel/random/uuid
  read -r second </proc/sys/kernel/random/uuid
  printf '%s\n' "$first$second" >"$1"
}

# What is made appears whole and on the disk, or not at all.
make_missing() {
  local credential file origin
  local made=()
  rm -rf "$SECRETS_DIRECTORY/.new"
  while read -r credential file origin; do
    if [ "$origin" = made ] && [ ! -e "$file" ]; then
      made+=("$SECRETS_DIRECTORY/.new/$credential")
    fi
  done <"$SECRETS"
  if [ ${#made[@]} = 0 ]; then
    return
  fi
  mkdir -m 0700 "$SECRETS_DIRECTORY/.new"
  for file in "${made[@]}"; do
    make_secret "$file"
  done
  sync "${made[@]}"
  mv -t "$SECRETS_DIRECTORY" "${made[@]}"
  rmdir "$SECRETS_DIRECTORY/.new"
  sync "$SECRETS_DIRECTORY"
}

# The secret of $1, in $secret; without the newline at its end.
read_secret() {
  local file=$1
  if [ ! -r "$file" ]; then
    echo "$file: there is no such secret; make it, or see which unit should" >&2
    exit 1
  fi
  secret=$(<"$file")
  if [[ ! $secret =~ ^[A-Za-z0-9._~+/=-]{16,512}$ ]]; then
    echo "$file: must hold 16 to 512 of A-Z a-z 0-9 . _ ~ + / = - in one line" >&2
    exit 1
  fi
}

replace_file() {
  local file=$1 owner=$2
  chown "$owner" "$file.new"
  mv "$file.new" "$file"
}

joined_acl() {
  local line credential
  while IFS= read -r line; do
    # Categories begin with @, too: "#@" is what begins a hash.
    while [[ $line =~ \#@([a-z0-9.-]+)@ ]]; do
      credential=${BASH_REMATCH[1]}
      line=${line/"@$credential@"/${hash_of[$credential]}}
    done
    printf '%s\n' "$line"
  done <"$ACL"
}

restart() {
  systemctl --no-block restart "$RESTART"
  exit
}

if [ -z "${RESTART:-}" ]; then
  make_missing
fi

operator_secret=
while read -r credential file origin; do
  if [ "$origin" = made ] && [ ! -e "$file" ]; then
    restart
  fi
  read_secret "$file"
  hash=$(printf '%s' "$secret" | sha256sum)
  hash_of[$credential]=${hash%% *}
  if [ "$credential" = redis-operator ]; then
    operator_secret=$secret
  fi
done <"$SECRETS"

acl=$(joined_acl)
if [ -n "${RESTART:-}" ]; then
  if [ "$acl" != "$(<"$ACL_FILE")" ]; then
    restart
  fi
  exit
fi

# What a killed start left behind may belong to another user.
rm -f "$ACL_FILE.new" "$OPERATOR_FILE.new"
printf '%s\n' "$acl" >"$ACL_FILE.new"
replace_file "$ACL_FILE" "$ACL_OWNER"

{
  printf 'export REDIS_URL=%s\n' "$REDIS_URL"
  printf 'export REDISCLI_AUTH=%s\n' "$operator_secret"
  printf 'export COWBOY_REDIS_NETNS=%s\n' "$REDIS_NETNS"
} >"$OPERATOR_FILE.new"
replace_file "$OPERATOR_FILE" "$OPERATOR_OWNER"
