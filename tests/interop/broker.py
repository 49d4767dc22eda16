"""A Kafka broker in KRaft mode: one node, loopback only, with plain, SASL and TLS listeners."""

import os
import pathlib
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).parent
LIBS = pathlib.Path(os.environ.get("AFTERWRITE_TEST_KAFKA") or pathlib.Path(os.environ["AFTERWRITE_TEST_CACHE"]) / "jars" / "kafka")
USER, PASSWORD = "alice", "alice-pw"


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def certificates(folder):
    """An authority of our own and a certificate of the broker, in PEM."""
    folder.mkdir()

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    authority = ["-keyout", "ca.key", "-out", "ca.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=afterwrite-test-ca", *authority)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3650", "-extfile", "server.ext", "-out", "server.crt"]
    openssl("x509", "-req", "-in", "server.csr", *signing)
    chain = "".join((folder / name).read_text() for name in ("server.key", "server.crt", "ca.pem"))
    (folder / "server.pem").write_text(chain)
    return folder


PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASLS://127.0.0.1:{sasl}
advertised.listeners=PLAIN://127.0.0.1:{plain},SASLS://127.0.0.1:{sasl}
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASLS:SASL_SSL
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
log.dirs={folder}/data
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.enable=false
ssl.keystore.type=PEM
ssl.keystore.location={certs}/server.pem
sasl.enabled.mechanisms=PLAIN
listener.name.sasls.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
"""


class Broker:
    def __init__(self, folder):
        folder.mkdir()
        plain, controller, sasl = free_ports(3)
        self.certs = certificates(folder / "certs")
        self.plain, self.sasl = f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}"
        properties = folder / "server.properties"
        ports = {"plain": plain, "controller": controller, "sasl": sasl}
        properties.write_text(PROPERTIES.format(folder=folder, certs=self.certs, user=USER, password=PASSWORD, **ports))
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{LIBS}/*", f"-Dlog4j2.configurationFile={HERE}/kafka/log4j2.xml"]
        format = ["-Xmx128m", "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(properties)]
        subprocess.run([*java, *format], check=True, capture_output=True)
        self.log = folder / "broker.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*java, "-Xmx512m", "kafka.Kafka", str(properties)], stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while "Kafka Server started" not in self.log.read_text():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def topic(self, name, partitions=1):
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.plain})  # kept: its end would end the request
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    def producer(self, **more):
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.plain, "linger.ms": 5, **more})

    def write(self, topic, values, partition=0):
        """Writes records, and waits until the broker has them."""
        producer = self.producer()
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def ends(self, topic, group, partitions):
        """Of each partition: the group's committed offset and the end."""
        from confluent_kafka import Consumer, TopicPartition

        asker = Consumer({"bootstrap.servers": self.plain, "group.id": group})
        try:
            asked = [TopicPartition(topic, p) for p in range(partitions)]
            committed = [p.offset for p in asker.committed(asked, 30)]
            return list(zip(committed, [asker.get_watermark_offsets(p, 30)[1] for p in asked]))
        finally:
            asker.close()
