# The preset: what runs together on one host. It only sets defaults.
{ config, lib, ... }:
{
  options.services.corral.enable =
    lib.mkEnableOption "the parts of Corral, wired together on one host";

  config = lib.mkIf config.services.corral.enable {
    services.cowboy.enable = lib.mkDefault true;
  };
}
