package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestFigures: the figures of rounds, and their texts.
func TestFigures(t *testing.T) {
	same := func(f float64) float64 { return f }
	for _, tt := range []struct {
		rounds []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 2}, 3}, {[]float64{9, 1, 2}, 2}} {
		if got := median(tt.rounds, same); got != tt.want {
			t.Errorf("median of %v: got %v, want %v", tt.rounds, got, tt.want)
		}
	}
	count := func(n int) int { return n }
	for got, want := range map[string]string{
		between([]int{7, 3, 5}, count): "3–7", between([]int{0, 0}, count): "0",
		grouped(200): "200", grouped(5000): "5,000", grouped(1234567): "1,234,567",
		millis(1940 * time.Microsecond): "1.9", millis(23_400 * time.Microsecond): "23",
		times(3, 2): "1.5", times(3, 0): "–",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// example is a comparison with two rounds.
func example() *comparison {
	c := newComparison(options{rounds: 2}, true)
	c.programs, c.absent = []program{router(), bento(), eventExporter()}, []program{shellOperator()}
	c.commands = map[string]string{own: "router -config DIR/config.yaml"}
	c.failed["Bento"] = errors.New("broken")
	c.costs = map[string][]costs{
		own:     {{rss: 100, rated: 0.4, burst: 0.2, ratedP50: 2 * time.Millisecond}, {rss: 120, rated: 0.6, burst: 0.2, ratedP50: 4 * time.Millisecond}},
		"Bento": {{rss: 80, rated: 1, burst: 0.6, burstLost: 3}},
	}
	lose := func(lost, deletes, again int) map[string][]losses {
		all := map[string][]losses{}
		for _, f := range allFaults() {
			all[f.name] = []losses{{lost, 5200, deletes, 100, again}, {lost, 5200, deletes, 100, again + 5}}
			if f.name == "503" {
				all[f.name] = []losses{{lost: lost, of: 6000, again: again}}
			}
		}
		return all
	}
	c.losses = map[string]map[string][]losses{own: lose(0, 100, 7), "Bento": lose(2, 0, 0)}
	c.rest = map[string]map[int][][]float64{own: {c.size.objects: {{1, 2, 3, 4}, {3, 4, 5, 6}}, c.size.many: {{5, 6, 7, 8}}}}
	return c
}

func TestSections(t *testing.T) {
	all := example().sections(t.Context())
	for part, lines := range map[string][]string{
		"programs": {
			"| deltarouter | unknown |  | `router -config DIR/config.yaml` |\n",
			"shell-operator was left out: its binaries were absent. Its configuration is written from its documentation, and was not\ntried.\n",
			"Bento failed, and was left out from then on.\n",
			"in a network namespace",
		},
		costPart: {
			"5,000 ConfigMaps: each update is one POST; 12,000 at 200/s, then 5,000 by 16 writers.\n",
			"| deltarouter | 0.50 | 1.0 | 0.20 | 1.0 | 3.0 / 0.0 | 0.0 / 0.0 | 110 |\n",
			"| Bento (3 not told) | 1.00 | 2.0 | 0.60 | 3.0 | 0.0 / 0.0 | 0.0 / 0.0 | 80 |\n",
			"-dir DIR -parts cost -rounds 2`.\n",
		},
		faultsPart: {
			"| program | kill: lost of 5,200 | deletes told | told again | 503: lost of 6,000 | told again | API server: lost of 5,200 | deletes told | told again | gap: lost of 5,200 | deletes told | told again |\n",
			"|---|--:|--:|--:|",
			"| deltarouter | 0 | 100/100 | 7–12 | 0 | 7 | 0 | 100/100 | 7–12 | 0 | 100/100 | 7–12 |\n",
			"| Bento | 2 | 0/100 | 0–5 | 2 | 0 | 2 | 0/100 | 0–5 | 2 | 0/100 | 0–5 |\n",
		},
		memoryPart: {
			"| program | 5,000: 20 s | 120 s | 240 s | 360 s | 20,000: 20 s | 120 s | 240 s | 360 s |\n",
			"| deltarouter | 2 | 3 | 4 | 5 | 5 | 6 | 7 | 8 |\n",
		},
	} {
		for _, line := range lines {
			if !strings.Contains(all[part], line) {
				t.Errorf("%s: there is no %q in\n%s", part, line, all[part])
			}
		}
	}
	for part, text := range all {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "|") && len([]rune(line)) > 121 {
				t.Errorf("%s: a line of %d columns: %s", part, len(line), line)
			}
		}
	}
}

// TestUnmeasured: a part that was not measured keeps its section.
func TestUnmeasured(t *testing.T) {
	c := example()
	c.losses, c.rest = nil, nil
	if all := c.sections(t.Context()); len(all) != 2 || all[costPart] == "" {
		t.Errorf("got %d sections", len(all))
	}
}
