# A small service that uses what the renderer must know; `tests/nix/test_render.py` says what
# becomes of it.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.sample;
  checked = pkgs.runCommand "sample.json" {
    text = builtins.toJSON cfg.settings;
    passAsFile = [ "text" ];
    nativeBuildInputs = [ pkgs.gnugrep ];
  } "grep -q '^{' \"$textPath\"\ncp \"$textPath\" $out\n";
in
{
  options.services.sample = {
    enable = lib.mkEnableOption "the sample";
    settings = lib.mkOption {
      type = lib.types.submodule { freeformType = (pkgs.formats.json { }).type; };
      default = { };
      description = "What its file says.";
    };
    extra = lib.mkOption {
      type = lib.types.attrs;
      default = { };
      description = "Keys for the unit.";
    };
    packages = lib.mkOption {
      type = lib.types.listOf lib.types.package;
      default = [ ];
      description = "Packages for its path.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = !cfg.settings ? forbidden;
        message = "services.sample.settings.forbidden: must not be set";
      }
    ];

    systemd.services.sample = {
      description = "a sample";
      wantedBy = [ "multi-user.target" ];
      after = [ "sample-first.service" ];
      requires = [ "sample-first.service" ];
      path = [ pkgs.iproute2 ] ++ cfg.packages;
      environment.SAMPLE = "a b";
      script = "exec cat /etc/sample/sample.json";
      restartTriggers = [ config.environment.etc."sample/sample.json".source ];
      startLimitIntervalSec = 0;
      serviceConfig = {
        User = "sample";
        Restart = "always";
        RestartSec = "100ms";
        ReadWritePaths = [
          "/run/sample"
          "/var/lib/sample"
        ];
      }
      // cfg.extra;
    };
    systemd.services.sample-first = {
      script = "true";
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
      };
    };

    systemd.tmpfiles.settings."10-sample"."/run/sample".d = {
      mode = "0755";
      user = "sample";
    };

    environment.etc."sample/sample.json".source = checked;
    environment.etc."sample/own" = {
      text = "mine\n";
      mode = "0400";
      user = "sample";
    };
    environment.systemPackages = [ (pkgs.writeShellScriptBin "sample" "cat ${./module.nix}") ];

    users.users.sample = {
      isSystemUser = true;
      group = "sample";
    };
    users.groups.sample = { };
    services.redis.servers.sample = {
      enable = true;
      settings.maxmemory = "1mb";
    };
  };
}
