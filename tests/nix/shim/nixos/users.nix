{ config, lib, pkgs, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.users;
  text = types.passwdEntry types.str;
  shell = types.package // {
    name = "shellPackage";
    check = x: lib.isDerivation x && x ? shellPath;
  };
  option = type: default: mkOption { inherit type default; };
  short =
    kind: name:
    if builtins.stringLength name < 32 then
      name
    else
      abort "${kind} '${name}' is longer than 31 characters which is not allowed!";

  user =
    { name, config, ... }:
    {
      options = {
        name = mkOption {
          type = text;
          apply = short "Username";
        };
        description = option text "";
        uid = option (types.nullOr types.int) null;
        isSystemUser = option types.bool false;
        isNormalUser = option types.bool false;
        group = mkOption {
          type = types.str;
          apply = short "Group name";
          default = "";
        };
        extraGroups = option (types.listOf types.str) [ ];
        home = option (types.passwdEntry types.path) "/var/empty";
        homeMode = option (types.strMatching "[0-7]{1,5}") "700";
        createHome = option types.bool false;
        shell = option (types.nullOr (
          types.either shell (types.passwdEntry types.path)
        )) pkgs.shadow;
        useDefaultShell = option types.bool false;
        packages = option (types.listOf types.package) [ ];
        linger = option types.bool false;
        hashedPassword = option (types.nullOr text) null;
        hashedPasswordFile = option (types.nullOr types.str) null;
        initialPassword = option (types.nullOr types.str) null;
        openssh.authorizedKeys.keys = option (types.listOf types.singleLineStr) [ ];
      };
      config = lib.mkMerge [
        {
          name = mkDefault name;
          shell = lib.mkIf config.useDefaultShell (mkDefault cfg.defaultUserShell);
        }
        (lib.mkIf config.isNormalUser {
          group = mkDefault "users";
          createHome = mkDefault true;
          home = mkDefault "/home/${config.name}";
          homeMode = mkDefault "700";
          useDefaultShell = mkDefault true;
          isSystemUser = mkDefault false;
        })
      ];
    };

  group =
    { name, config, ... }:
    {
      options = {
        name = mkOption { type = text; };
        gid = option (types.nullOr types.int) null;
        members = option (types.listOf text) [ ];
      };
      config = {
        name = mkDefault name;
        members = lib.concatMap (
          user: lib.optional (builtins.elem config.name user.extraGroups) user.name
        ) (builtins.attrValues cfg.users);
      };
    };

  numbers = which: set: builtins.filter (n: n != null) (lib.mapAttrsToList (_: x: x.${which}) set);
in
{
  options.users = {
    mutableUsers = option types.bool true;
    enforceIdUniqueness = option types.bool true;
    defaultUserShell = option (types.either types.path shell) pkgs.bashInteractive;
    users = option (types.attrsOf (types.submodule user)) { };
    groups = option (types.attrsOf (types.submodule group)) { };
  };

  config = {
    users.users.root = {
      uid = 0;
      description = "System administrator";
      home = "/root";
      shell = mkDefault cfg.defaultUserShell;
      group = "root";
    };
    users.groups = {
      root.gid = 0;
      users.gid = 100;
    };
    assertions = [
      {
        assertion =
          !cfg.enforceIdUniqueness
          || (lib.allUnique (numbers "uid" cfg.users) && lib.allUnique (numbers "gid" cfg.groups));
        message = "UIDs and GIDs must be unique!";
      }
    ]
    ++ lib.concatMap (
      user:
      let
        # A number below 1000 makes a system user, too.
        system = user.isSystemUser || (user.uid != null && user.uid < 1000);
        exactlyOne = system != user.isNormalUser;
      in
      [
        {
          assertion = exactlyOne;
          message =
            "\nExactly one of users.users.${user.name}.isSystemUser"
            + " and users.users.${user.name}.isNormalUser must be set.\n";
        }
        {
          assertion = user.group != "";
          message =
            "\nusers.users.${user.name}.group is unset. This used to default to\n"
            + "nogroup, but this is unsafe. For example you can create a group\n"
            + "for this user with:\nusers.users.${user.name}.group = \"${user.name}\";\n"
            + "users.groups.${user.name} = {};\n";
        }
      ]
    ) (builtins.attrValues cfg.users);
  };
}
