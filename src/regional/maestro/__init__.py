"""Resource bundles carried to management clusters over MQTT.

`server` keeps bundles and publishes them, `agent` pulls and applies them on its cluster. The two share nothing but
messages. Called by `clm.adapter` and `platform_api` through the server.
"""
