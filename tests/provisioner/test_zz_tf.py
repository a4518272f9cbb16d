import os, time
async def test_tf(ground, monkeypatch):
    monkeypatch.setenv("TF_CLI_ARGS_init","-plugin-dir=/opt/tf-plugins"); monkeypatch.delenv("TF_CLI_CONFIG_FILE", raising=False)
    await ground.with_broker()
    await ground.provision("maestro-agent-iot-regional", ground.management_inputs("mc01"))
    for root in os.environ["TF_ROOTS"].split(","):
        t=time.time()
        inputs = ground.management_inputs("mc01") if root.startswith("ma") else ground.regional_inputs()
        print("OUT", root, await ground.provision(root, inputs, engine="terraform"), time.time()-t)
        t=time.time()
        print("OUT", root, await ground.provision(root, inputs, engine="terraform"), time.time()-t)
