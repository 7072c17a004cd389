// Named registers: an array would be kept in memory around the barriers. Twelve where there are sixteen in all.
#pragma once

#define REPEAT12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define REPEAT16(X) REPEAT12(X) X(12) X(13) X(14) X(15)
