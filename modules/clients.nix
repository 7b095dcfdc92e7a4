# Services of this host that speak to an agent through its streams: each joins the namespace
# and gets the password of its own identity.
{ config, lib, ... }:
let
  cfg = config.services.cowboy;
  derived = import ./derived.nix { inherit lib cfg; };

  client =
    { unit, credential, ... }:
    {
      ${derived.serviceName unit} = lib.mkMerge [
        derived.membership
        derived.holder
        { serviceConfig.LoadCredential = [ (derived.loadCredential credential credential) ]; }
      ];
    };
in
{
  config = lib.mkIf cfg.enable { systemd.services = lib.mkMerge (map client derived.clients); };
}
