# A service's program for PATH, with what the service has: before the same name of another package.
# User, settings, groups and namespace are those of systemd.services.SERVICE. See operator.sh.
{
  config,
  lib,
  pkgs,
  package,
  name,
  service,
  what,
  variable,
  secrets ? [ ],
}:
let
  unit = config.systemd.services.${service};
  has = unit.serviceConfig;
in
pkgs.writeTextFile {
  name = "${name}-operator";
  executable = true;
  destination = "/bin/${name}";
  text = ''
    #!${pkgs.runtimeShell}
    NAME=${name}
    PROGRAM=${lib.getExe' package name}
    SYSTEMD_RUN=${config.systemd.package}/bin/systemd-run
    SERVICE=${service}
    WHAT=${what}
    SERVICE_USER=${has.User}
    VARIABLE=${variable}
    SETTINGS=${unit.environment.${variable}}
    SECRETS=(${lib.escapeShellArgs secrets})
    MEMBER_OF=(${lib.escapeShellArgs (has.SupplementaryGroups or [ ])})
    NAMESPACE=${has.NetworkNamespacePath or ""}
    ${builtins.readFile ./operator.sh}'';
  meta.priority = 3;
}
