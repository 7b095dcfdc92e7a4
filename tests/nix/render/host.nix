# A host as data: everything that the renderer turns into files.
{
  nixpkgs,
  modules,
  overlays ? [ ],
}:
let
  flake = import (nixpkgs + "/flake.nix");
  self = {
    outPath = toString nixpkgs;
  };
  inherit (flake.outputs { inherit self; }) lib;
  # What a host says about its hardware is not rendered; a whole NixOS wants to know it.
  weak = lib.mkOverride 1400;
  bare = {
    boot.loader.grub.enable = weak false;
    documentation.nixos.enable = weak false;
    fileSystems."/" = weak {
      device = "/dev/vda";
      fsType = "ext4";
    };
    system.stateVersion = weak lib.trivial.release;
  };
  system = lib.nixosSystem {
    system = "x86_64-linux";
    modules = [
      bare
      { nixpkgs.overlays = overlays; }
    ]
    ++ modules;
  };
  inherit (system) config;
  failed = builtins.filter (a: !a.assertion) config.assertions;

  unit = u: {
    inherit (u)
      text
      enable
      aliases
      wantedBy
      requiredBy
      upheldBy
      overrideStrategy
      ;
  };
  file = f: {
    inherit (f)
      target
      mode
      user
      group
      ;
    source = "${f.source}";
  };
  user = u: {
    inherit (u)
      uid
      group
      home
      description
      ;
    system = u.isSystemUser;
    create_home = u.createHome;
    extra_groups = u.extraGroups;
    shell = if u.shell == null then null else "${u.shell}${u.shell.shellPath or ""}";
  };
  # Of two packages with a program of one name NixOS takes that of the lower number; here the last.
  priority = package: package.meta.priority or 5;
  packages = builtins.sort (a: b: priority a > priority b) config.environment.systemPackages;
  settings = lib.concatLists (
    lib.mapAttrsToList (
      _: paths:
      lib.concatLists (
        lib.mapAttrsToList (
          path: entries:
          lib.mapAttrsToList (
            _: e:
            "'${e.type}' '${path}' '${e.mode}' '${e.user}' '${e.group}' '${e.age}' ${e.argument}"
          ) entries
        ) paths
      )
    ) config.systemd.tmpfiles.settings
  );
in
{
  assertions = map (a: a.message) failed;
  inherit (config) warnings;
  units = builtins.mapAttrs (_: unit) config.systemd.units;
  etc = map file (builtins.filter (f: f.enable) (builtins.attrValues config.environment.etc));
  users = builtins.mapAttrs (_: user) config.users.users;
  groups = builtins.mapAttrs (_: g: { inherit (g) gid members; }) config.users.groups;
  tmpfiles = config.systemd.tmpfiles.rules ++ settings;
  sysctl = config.boot.kernel.sysctl;
  packages = map toString packages;
}
