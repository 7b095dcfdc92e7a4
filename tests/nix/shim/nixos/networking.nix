# The host's network as far as a service touches it: firewall, NAT, who manages interfaces.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  ports = mkOption {
    type = types.listOf types.port;
    default = [ ];
  };
  text = mkOption {
    type = types.lines;
    default = "";
  };
  names = mkOption {
    type = types.listOf types.str;
    default = [ ];
  };
  flag =
    default:
    mkOption {
      type = types.bool;
      inherit default;
    };
in
{
  options.networking = {
    firewall = {
      enable = flag true;
      allowedTCPPorts = ports;
      allowedUDPPorts = ports;
      trustedInterfaces = names;
      extraCommands = text;
      extraForwardRules = text;
      interfaces = mkOption {
        default = { };
        type = types.attrsOf (
          types.submodule {
            options = {
              allowedTCPPorts = ports;
              allowedUDPPorts = ports;
            };
          }
        );
      };
    };
    nat = {
      enable = flag false;
      internalInterfaces = names;
      internalIPs = names;
      externalInterface = mkOption {
        type = types.nullOr types.str;
        default = null;
      };
    };
    nftables.enable = flag false;
    dhcpcd = {
      enable = flag true;
      denyInterfaces = names;
    };
    networkmanager = {
      enable = flag false;
      unmanaged = names;
    };
  };
}
