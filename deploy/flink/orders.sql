-- Orders stream into an Iceberg table; each checkpoint is a commit, and the hook writes each commit to a Kafka topic, which the
-- sidecar reads: topics = [{ topic = "commits", format = "json" }]. ${…} come from the environment.
CREATE CATALOG lake WITH (
  'type' = 'iceberg',
  'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog',
  'uri' = '${CATALOG_URI}',
  'jdbc.schema-version' = 'V1',
  'warehouse' = '${WAREHOUSE}',
  'cache-enabled' = 'false',
  'metrics-reporter-impl' = 'afterwrite.hook.CommitReporter',
  'afterwrite.kafka.topic' = 'commits',
  'afterwrite.kafka.bootstrap.servers' = '${BROKERS}'
);

CREATE DATABASE IF NOT EXISTS lake.sales;

CREATE TABLE IF NOT EXISTS lake.sales.orders (
  id BIGINT,
  region STRING,
  amount BIGINT
) PARTITIONED BY (region) WITH (
  'format-version' = '2',
  'write.summary.partition-limit' = '100'
);

CREATE TEMPORARY TABLE arriving (
  id BIGINT,
  amount BIGINT
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '${ROWS_PER_SECOND}',
  'fields.id.kind' = 'sequence',
  'fields.id.start' = '1',
  'fields.id.end' = '${ROWS}',
  'fields.amount.min' = '1',
  'fields.amount.max' = '1000'
);

SET 'execution.checkpointing.interval' = '${CHECKPOINT_INTERVAL}';

INSERT INTO lake.sales.orders
SELECT id, CASE MOD(id, 3) WHEN 0 THEN 'eu' WHEN 1 THEN 'us' ELSE 'asia' END, amount FROM arriving;
