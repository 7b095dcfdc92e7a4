# A bridge on a slow machine, whose people say much at once.
{ ... }:
{
  services.a2a-bridge.settings = {
    # An emulated machine pauses for seconds; a killed database's jobs go on after as long.
    lease_s = 10;
    sender_rate_per_min = 0;
    room_rate_per_min = 0;
  };
}
