package kafka_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// TestProblems: each mistake is one problem at its position.
// internal/commands/testdata/mistakes.md shows the output.
func TestProblems(t *testing.T) {
	for _, test := range []struct{ config, path, want string }{
		{"{topic: k}", "", "brokers is missing"},
		{"{brokers: [], topic: k}", "brokers", "at least"},
		{"{brokers: 'h:9092'}", "", "topic is missing"},
		{"{brokers: h, topic: k}", "brokers", "must be host:port"},
		{"{brokers: ['h:9092', ':9092'], topic: k}", "brokers[1]", "must be host:port"},
		{"{brokers: 'h:kafka', topic: k}", "brokers", "must be host:port"},
		{"{brokers: 'h:0', topic: k}", "brokers", "must be host:port"},
		{"{brokers: 'h:65536', topic: k}", "brokers", "must be host:port"},
		{"{brokers: 'kafka://h:9092', topic: k}", "brokers", "must be host:port"},
		{"{brokers: 'h:9092', topic: 'a b'}", "topic", "is not a topic name"},
		{"{brokers: 'h:9092', topic: '..'}", "topic", "is not a topic name"},
		{"{brokers: 'h:9092', topic: " + strings.Repeat("k", 250) + "}", "topic", "is not a topic name"},
		{"{brokers: 'h:9092', topic: k, sasl: {user: a}}", "sasl", "needs both user and password"},
		{"{brokers: 'h:9092', topic: k, sasl: {password: s3cret}}", "sasl", "needs both user and password"},
		{"{brokers: 'h:9092', topic: k, sasl: {mechanism: plain}}", "sasl", "needs user and password"},
		{"{brokers: 'h:9092', topic: k, sasl: {mechanism: gssapi, user: a, password: s3cret}}", "sasl.mechanism", "plain"},
		{"{brokers: 'h:9092', topic: k, tls: {key: {file: a}}}", "tls", "needs both cert and key"},
		{"{brokers: 'h:9092', topic: k, maxBytes: 1Gi}", "maxBytes", "at most 256Mi"},
	} {
		problems := kafka.Kind().Check(plugintest.Node(t, test.config))
		if len(problems) != 1 || problems[0].Path != test.path || !strings.Contains(problems[0].Message, test.want) || strings.Contains(problems.Error(), "s3cret") {
			t.Errorf("%s: got %v, want one problem at %s with %q", test.config, problems, test.path, test.want)
		}
	}
	for _, good := range []string{"{brokers: '[::1]:9092', topic: '...'}", "{brokers: h:1, topic: a.b_c-D, sasl: {}, tls: {}}"} {
		if problems := kafka.Kind().Check(plugintest.Node(t, good)); problems != nil {
			t.Errorf("%s: %v", good, problems)
		}
	}
}
