package process_test

import (
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
)

func TestMistakes(t *testing.T) {
	const sum = "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, tt := range []struct {
		yaml string
		want []string
	}{
		{"command: x\n" + sum, nil},
		{"{}", []string{"1:1: command is missing", "1:1: sha256 is missing"}},
		{"command: []\n" + sum, []string{"1:10: command: is empty: it needs at least one element"}},
		{"command: ['']\n" + sum, []string{"1:11: command[0]: is empty: the program comes first"}},
		{"command: x\nsha256: 9f86", []string{"2:9: sha256: must be 64 hexadecimal digits, as sha256sum prints them"}},
		{"command: x\n" + sum + "\nenv: {PLUGIN_X: 1, 'A B': 2, DELTAROUTER_PLUGIN: 3}", []string{
			"3:17: env.PLUGIN_X: is set by the router itself: remove it",
			"3:27: env[\"A B\"]: is not the name of an environment variable",
			"3:50: env.DELTAROUTER_PLUGIN: is set by the router itself: remove it",
		}},
		{"command: x\n" + sum + "\nallow: {lookup: [pods., a.b.c], http: []}", []string{
			"3:18: allow.lookup[0]: must be the name of a source, or source.index",
			"3:25: allow.lookup[1]: must be the name of a source, or source.index",
			"3:33: allow.http: unknown key; known are lookup, kv, log",
		}},
		{"command: x\n" + sum + "\nlimits: {timeout: 0s, breaker: -1, input: 1Ki}", []string{
			"3:19: limits.timeout: must be at least 1ms, not 0s",
			"3:32: limits.breaker: must be at least 0, not -1",
			"3:43: limits.input: must be at least 64Ki, not 1Ki",
		}},
		{"command: x\n" + sum + "\nconfig: {a: .nan}", []string{"3:13: config.a: is a number that JSON does not have: put it in quotes"}},
	} {
		var got []string
		for _, p := range process.Kind().Check(plugintest.Node(t, tt.yaml)).Sorted() {
			got = append(got, p.Error()[len("test.yaml:"):])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s\ngot  %q\nwant %q", tt.yaml, got, tt.want)
		}
	}
}
