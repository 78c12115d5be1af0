#include "label-audit.c"

int main(int argc, char **argv) {
	if (!dr_test_config("{\"prefx\": \"a\"}") || !dr_test_config("{\"prefix\": 1}")) return 1; // refused
	for (int i = 1; i < argc; i++) {
		dr_test_config(NULL);
		dr_test_golden(argv[i]);
	}
	return dr_test_end();
}
