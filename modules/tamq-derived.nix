# From the options of TAMQ to names, paths and the text of settings. Pure.
{ lib, cfg }:
rec {
  # By checked name: whatever is made of a user, a name that is none is refused first.
  users = lib.mapAttrs' (_: options: lib.nameValuePair options.name options) (
    lib.filterAttrs (_: user: user.enable) cfg.users
  );

  unitName = user: "tamq-${user}";
  directory = user: "${cfg.runtimeDir}/${user}";
  socket = user: "${directory user}/tamq.sock";

  # The longest that is made there: `tamq run` has a socket of its own, named by its pid.
  longestSocket = user: "${directory user}/pty-4194304.sock";

  state = user: "/var/lib/tamq/${user}";

  # What is written elsewhere than in the unit's own folders.
  foreignFolders =
    user: options:
    let
      folder = options.settings.capture_dir;
    in
    lib.optional (folder != null && !lib.hasPrefix "${state user}/" folder) folder;

  settingsText =
    user: options:
    builtins.toJSON (
      lib.filterAttrs (_: value: value != null) options.settings
      // {
        socket = socket user;
        state_dir = state user;
      }
    )
    + "\n";
}
