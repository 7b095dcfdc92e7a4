# `corral-gateway` by itself.
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
  name = "corral-gateway";
  description = "An A2A server in front of agents that read a stream, with durable tasks";
}
