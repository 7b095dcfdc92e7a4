# shellcheck shell=bash
# Runs after make-tokens.sh, in the same shell: writes the registration, which holds the tokens;
# those that are not made are credentials.
#
# RUNTIME_DIRECTORY: where the registration is put, for the group of this unit.
umask 0337
rm -f "$RUNTIME_DIRECTORY/registration.yaml.new"
a2a-bridge registration >"$RUNTIME_DIRECTORY/registration.yaml.new"
mv "$RUNTIME_DIRECTORY/registration.yaml.new" "$RUNTIME_DIRECTORY/registration.yaml"
