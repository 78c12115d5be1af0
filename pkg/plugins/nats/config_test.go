package nats_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

func TestProblems(t *testing.T) {
	for _, test := range []struct{ name, config, path, want string }{
		{"no servers", "{}", "", "servers is missing"},
		{"no scheme", "servers: nats.example.com:4222", "servers", "must be like nats://host:4222"},
		{"websocket", "servers: [nats://a, wss://b]", "servers[1]", "must be like"},
		{"a password", "servers: nats://u:s3cret@h:4222", "servers", "below auth"},
		{"unknown part", "{servers: nats://h, subject: 'k8s.{nmae}'}", "subject", "there is no {nmae}; there are: cluster, kind, name,"},
		{"two parts in a token", "{servers: nats://h, subject: 'k8s.{namespace}-{name}'}", "subject", "a token by itself"},
		{"wildcard", "{servers: nats://h, subject: 'k8s.>'}", "subject", "wildcards"},
		{"empty token", "{servers: nats://h, subject: 'k8s..{name}'}", "subject", "empty token"},
		{"system subject", "{servers: nats://h, subject: '$JS.API.{name}'}", "subject", "must not begin with"},
		{"inbox", "{servers: nats://h, subject: '_INBOX.{name}'}", "subject", "must not begin with"},
		{"stream name", "{servers: nats://h, stream: {name: a.b}}", "stream.name", "must not have blanks"},
		{"stream without name", "{servers: nats://h, stream: {create: true}}", "stream.create", "needs the stream's name"},
		{"settings of a stream that is not made", "{servers: nats://h, stream: {name: a, replicas: 3}}", "stream.replicas", "add create: true"},
		{"duplicates", "{servers: nats://h, stream: {name: a, create: true, maxAge: 1m}}", "stream.duplicates", "must not be longer than maxAge"},
		{"two identities", "{servers: nats://h, auth: {token: a, nkey: b}}", "auth", "has nkey and token: keep one"},
		{"no password", "{servers: nats://h, auth: {user: a}}", "auth", "needs both user and password"},
		{"no key", "{servers: nats://h, tls: {cert: {file: a}}}", "tls", "needs both cert and key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems := nats.Kind().Check(plugintest.Node(t, test.config))
			if len(problems) != 1 || problems[0].Path != test.path || !strings.Contains(problems[0].Message, test.want) {
				t.Errorf("got %v, want one problem at %s with %q", problems, test.path, test.want)
			}
			if strings.Contains(problems.Error(), "s3cret") {
				t.Errorf("a problem quotes a password: %v", problems)
			}
		})
	}
}
