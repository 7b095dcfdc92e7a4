# The agent of the machines with cowboy: works for as long as its prompt says, and notes every
# effect; the judge counts them.
{ pkgs }:
pkgs.writeShellScriptBin "corral-demo-agent" ''
  exec ${pkgs.python3}/bin/python3 -I -S ${../../python/corral/local/agent.py}
''
