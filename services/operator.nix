# A service's program for PATH, with what the service has: before the same name of another package.
# Of systemd.services.SERVICE it takes the groups. See operator.sh.
{
  config,
  lib,
  pkgs,
  package,
  name,
  service,
  what,
  user,
  variable,
  settings,
  secrets ? [ ],
  namespace ? "",
}:
let
  groups = config.systemd.services.${service}.serviceConfig.SupplementaryGroups or [ ];
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
    SERVICE_USER=${user}
    VARIABLE=${variable}
    SETTINGS=${settings}
    SECRETS=(${lib.escapeShellArgs secrets})
    MEMBER_OF=(${lib.escapeShellArgs groups})
    NAMESPACE=${namespace}
    ${builtins.readFile ./operator.sh}'';
  meta.priority = 3;
}
