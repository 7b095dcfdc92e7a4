"""What every service of Corral stands on. Imports nothing by itself: take the module you need.

Order of dependency (each module may import those above it): ``errors``, ``ids``, ``crashpoints``,
``clock``, ``backoff``, ``notify``, ``logs``, ``metrics``, ``settings``, ``sqlfiles``, ``database``,
``sqlite``. Nothing here knows a service.
"""
