# `a2a-bridge` by itself.
{
  lib,
  corral,
  runtimeShell,
  writeTextFile,
}:
import ../program.nix {
  inherit
    lib
    corral
    runtimeShell
    writeTextFile
    ;
  name = "a2a-bridge";
  description = "Mentions in Matrix rooms become tasks of A2A agents, through a durable ledger";
}
