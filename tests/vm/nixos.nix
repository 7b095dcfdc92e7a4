# What a scenario's machine has on NixOS beside its host: the programs that scenarios call. On the
# Debian machine of `./corral vm` tests/vm/payload.py and guest/packages do this.
{ config, pkgs, ... }:
let
  inherit (pkgs) python3;

  programs = pkgs.runCommand "corral-vm-programs" { } ''
    site=$out/${python3.sitePackages}/tests/vm
    mkdir -p "$site"
    cp -r ${./programs} "$site/programs"
  '';

  environment = python3.withPackages (packages: [
    (packages.toPythonModule config.services.cowboy.package)
    (packages.toPythonModule programs)
  ]);

  corral-vm = pkgs.writeShellScriptBin "corral-vm" ''
    export CORRAL_VM_PYTHON=${environment}/bin/python
    exec ${pkgs.bash}/bin/bash ${./programs/corral-vm.sh} "$@"
  '';
in
{
  environment.systemPackages = [
    corral-vm
    config.services.redis.package
    pkgs.iproute2
    pkgs.netcat
    pkgs.tmux
    pkgs.util-linux
  ];
}
