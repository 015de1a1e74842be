#include <cmath>
#include <iostream>
#include <vector>

int main() {
    int count;
    std::cin >> count;
    std::vector<double> x(count), y(count);
    for (int i = 0; i < count; i++) std::cin >> x[i] >> y[i];

    // EVOLVE-BLOCK-START
    std::vector<bool> visited(count, false);
    int here = 0;
    for (int step = 0; step < count; step++) {
        visited[here] = true;
        std::cout << here << "\n";
        int nearest = -1;
        double least = INFINITY;
        for (int i = 0; i < count; i++) {
            double distance = std::hypot(x[i] - x[here], y[i] - y[here]);
            if (!visited[i] && distance < least) {
                nearest = i;
                least = distance;
            }
        }
        here = nearest;
    }
    // EVOLVE-BLOCK-END
}
