package fleet

import "testing"

func TestOlder(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.11.17": true, "2.12.0": true, "2.12.1-RC.1": false, "2.12.1": false, "2.12.10": false, "2.14.0": false, "3.0.0": false, "2": true, "x": true,
	} {
		if got := older(version, minVersion); got != want {
			t.Errorf("%s: got %t", version, got)
		}
	}
}
