# `tamq` by itself, with the tmux through which it reaches panes.
{
  lib,
  corral,
  runtimeShell,
  tmux,
  writeTextFile,
}:
import ../program.nix {
  inherit
    lib
    corral
    runtimeShell
    writeTextFile
    ;
  name = "tamq";
  description = "A durable queue that wakes live agent sessions in their terminals";
  # Last in the path: inside of a session, its own tmux is the one that fits its server.
  setUp = ''
    export PATH="$PATH:${lib.makeBinPath [ tmux ]}"
  '';
}
