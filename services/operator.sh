# shellcheck shell=bash
# A service's program as it is on the PATH of this host: what root asks runs as the service's user,
# with the settings, the secrets and the groups of the service.
#
# PROGRAM: the program itself; NAME: how it is called. SYSTEMD_RUN: with what it is run, as
# SERVICE_USER, with the SETTINGS that VARIABLE names. SERVICE: the unit; WHAT: what it is. SECRETS:
# an array, each `NAME:FILE`; MEMBER_OF: its groups. NAMESPACE: that of the network in which `doctor`
# looks; empty: this one.
set -euo pipefail

refuse() { # STATUS CODE MESSAGE HINT, as the program itself says it
  case " ${words[*]} " in
    *' --json '*)
      printf '{"ok": false, "error": {"code": "%s", "message": "%s", "hint": "%s", "ids": {}}}\n' \
        "$2" "$3" "$4"
      ;;
    *) printf '%s: %s\nhint: %s\n' "$NAME" "$3" "$4" >&2 ;;
  esac
  exit "$1"
}

words=("$@")

# Whoever has settings of their own, or wants only to read, needs nothing of the service.
if [ "${!VARIABLE-$SETTINGS}" != "$SETTINGS" ] || [ "$#" = 0 ]; then
  exec "$PROGRAM" "$@"
fi
for word in "$@"; do
  case $word in
    -h | --help | --version) exec "$PROGRAM" "$@" ;;
  esac
done

if [ "$EUID" != 0 ]; then
  refuse 77 no_permission "no permission: only root can ask with the secrets of the $WHAT" \
    'run it as root'
fi
if [ "$1" = run ]; then
  refuse 64 usage "on this host a service runs the $WHAT" "systemctl start $SERVICE"
fi

# The description stands in the journal, where no argument of the command belongs.
options=(--quiet --collect --pipe --wait --service-type=exec "--uid=$SERVICE_USER")
options+=("--description=A command about the $WHAT" "--setenv=$VARIABLE=$SETTINGS")
options+=("--setenv=SUDO_USER=${SUDO_USER:-root}") # who asks, for the audit
for group in "${MEMBER_OF[@]}"; do
  options+=("--property=SupplementaryGroups=$group")
done
for secret in "${SECRETS[@]}"; do
  options+=("--property=LoadCredential=$secret")
done
if [ -n "$NAMESPACE" ] && [ "$1" = doctor ]; then
  options+=("--property=NetworkNamespacePath=$NAMESPACE")
fi
# Nothing reads its standard input; a terminal that systemd gets there becomes the service user's.
# It would replace what follows a dollar by a variable, and ids of Matrix begin with one.
status=0
"$SYSTEMD_RUN" "${options[@]}" -- "$PROGRAM" "${@//\$/\$\$}" </dev/null || status=$?
case $status in # systemd's own words: for a namespace, and for credentials that it cannot read
  225) refuse 69 unavailable "the namespace $NAMESPACE is not there" 'systemctl start cowboy-ns' ;;
  243) refuse 78 secret_unreadable "a secret of the $WHAT cannot be read" "it has: ${SECRETS[*]}" ;;
esac
exit "$status"
