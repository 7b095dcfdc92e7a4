# shellcheck shell=bash
# Makes what is missing of the secrets, joins their hashes into the ACL file, and writes the
# operator's environment. With RESTART set it writes none of these, and restarts that unit until the
# ACL file is that of the secrets and all who hold one run again. No secret is ever an argument of
# a program.
#
# SECRETS: one "credential file made|given" a line; what is made is in SECRETS_DIRECTORY.
# ACL: the file with @credential@ where a hash belongs.
# HELD: where it is written down who is to be started again.
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

# Sets hash_of and operator_secret; false when one that is made here is missing.
read_all() {
  local credential file origin hash
  operator_secret=
  while read -r credential file origin; do
    if [ "$origin" = made ] && [ ! -e "$file" ]; then
      return 1
    fi
    read_secret "$file"
    hash=$(printf '%s' "$secret" | sha256sum)
    hash_of[$credential]=${hash%% *}
    if [ "$credential" = redis-operator ]; then
      operator_secret=$secret
    fi
  done <"$SECRETS"
}

# Whether the ACL is that of the secrets, and who held the former ones runs.
settled() {
  local acl
  read_all && acl=$(joined_acl) && [ "$acl" = "$(<"$ACL_FILE")" ] && [ ! -e "$HELD" ]
}

# When the unit fails, as it may while a file is being replaced, those that need it are not started,
# and nobody would start them later. So who runs is written down until it was started again.
note_holders() {
  local unit
  for unit in $(systemctl show --property=RequiredBy --value "$RESTART"); do
    case $(systemctl show --property=ActiveState --value "$unit") in
      active | activating | reloading) printf '%s\n' "$unit" ;;
    esac
  done >>"$HELD"
}

restart() {
  local units
  note_holders
  systemctl restart "$RESTART" || return
  mapfile -t units < <(sort -u "$HELD")
  if [ ${#units[@]} != 0 ]; then
    systemctl --no-block start "${units[@]}" || return
  fi
  rm "$HELD"
}

if [ -n "${RESTART:-}" ]; then
  while :; do
    if [ ! -e "$HELD" ]; then
      read_all || true # one that is malformed ends this here: nothing that runs is touched
    fi
    if (settled); then
      exit
    fi
    restart || sleep "${PAUSE_S:-5}"
  done
fi

make_missing
until read_all; do
  make_missing # it was deleted meanwhile
done

acl=$(joined_acl)

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
